"""The alias ``candidate`` for a model that DVC took from its cache or a remote, so that no stage registered it."""

from harr.errors import CorpusError
from harr.io.files import SUMS, check_sums, digest_of
from harr.params import Params
from tasks.evaluation_outputs import summary_here
from tasks.merge import version_tags
from tasks.paths import EVALUATION, trained_folder
from tasks.registry.register import CANDIDATE, find_registered, propose, register, results_of
from tasks.tracking.client import open_client
from tasks.tracking.errors import look_up, service
from tasks.tracking.inputs import check_settings
from tasks.tracking.run import tracked_run


def has_model(params: Params) -> bool:
    """Return whether there is a model here, made by stage merge or restored by DVC."""
    return (trained_folder(params)[1] / SUMS).exists()


def keep_candidate(params: Params, *, by_hand: bool = False) -> str:
    """Point ``candidate`` at the model in models/, and register the model if the registry lacks it.

    Args:
        params: their section tracking names the registered model.
        by_hand: whether a version that was rolled back becomes the candidate, too.

    Returns:
        What was done, in a line; "" if nothing.

    Raises:
        CorpusError: there is no model.
        ParamsError: params.yaml was changed since the model was made, so it does not describe the evaluation.
        DamagedFile: a file of the model or of its evaluation is missing or changed.
        ServiceUnavailable: a server did not answer.
    """
    kind, folder = trained_folder(params)
    if not has_model(params):
        raise CorpusError(f"{folder} holds no model; run `dvc pull` or `dvc repro`")
    check_sums(folder, "dvc checkout merge")
    check_sums(EVALUATION, "dvc checkout evaluate")
    name = params.tracking.registered_model
    with service():
        client = open_client(params)
        facts = {"kind": kind, "model": digest_of(folder), "results": results_of(params, EVALUATION)}
        existing = find_registered(client, name, facts, folder)
        if existing:
            before = look_up(client.get_model_version_by_alias, name, CANDIDATE)
            if not propose(client, name, existing, by_hand=by_hand):
                mend = "`harr record --register` makes it the candidate"
                return f"version {existing.version} of {name} was rolled back; {mend}"
            same = before and str(before.version) == str(existing.version)
            return "" if same else f"candidate of {name} is version {existing.version}: the model in {folder}"
    check_settings(params)
    tags, figures = version_tags(params, folder), summary_here()
    with tracked_run("register", params) as run:
        version = register(run, params, kind, folder, EVALUATION, tags, figures)
        run.tag(version=version)
    return f"registered {name} version {version} (alias candidate): the model in {folder}"
