"""Stage merge: the adapter folded into the trained model, and a new version in the registry."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harr.arms import ARMS, TRAINED, Arm
from harr.errors import ServiceUnavailable, StaleState
from harr.io.files import draft, fingerprint, read_state, write_json
from harr.io.model_folder import FORMAT
from harr.params import Params
from harr.params.embed import EncoderParams
from harr.params.reward import metric_name
from tasks.common import dataset_name, filter_suite, read_vectors_manifest
from tasks.evaluation_outputs import deciding_metric, summary_here
from tasks.evaluation_record import check_played, content_of, same_game
from tasks.paths import ADAPTER, EVALUATION, LANGUAGE_MODEL, LOCK, METRICS, RETRIEVER, WORK, trained_folder
from tasks.runtime.stage import main
from tasks.tracking.fingerprints import revisions
from tasks.tracking.inputs import check_settings
from tasks.tracking.run import Run
from tasks.trained_runs import trained_runs

if TYPE_CHECKING:
    from harr.embed.encoder import Encoder


def merge_adapter(params: Params) -> dict[str, float]:
    """Write the trained model as a stock folder, models/retriever or models/language_model, compared with the adapter.

    The other folder names what played there in ``untrained.json``.
    """
    if params.language_model_learns:
        from harr.merge.language_model import merge_language_model

        facts = {"index_identity": read_vectors_manifest()["identity"], "adapter": content_of(ADAPTER)}
        _note(RETRIEVER, params, {"encoder", "retriever"})
        return merge_language_model(
            ADAPTER, LANGUAGE_MODEL, WORK / "merge", facts=facts, training=training_facts(params)
        )
    figures = export_arm(params, TRAINED, RETRIEVER)
    _note(LANGUAGE_MODEL, params, {"generator"})
    return figures


def export_arm(params: Params, name: str, out: Path) -> dict[str, float]:
    """Write an arm as the folder ``out``, which harr.Retriever loads; returns how well its encoder agrees.

    A trained arm has a query tower and a document tower. The latter is the base encoder, or the trained one of actions;
    ``merge.towers`` may leave it out. An untrained arm that reads vectors has the base encoder as both.
    """
    from harr.builders.encoder import action_folder, build_encoder, query_section
    from harr.builders.players import arm_params
    from harr.merge.retriever import ExportedTower, merge

    arm = {**ARMS, **params.evaluate.arm_table}[name]
    params = arm_params(params, arm)
    adapter = trained_runs(params).get(name, [ADAPTER])[0] if arm.trained else None
    vectors = read_vectors_manifest()
    states = query_section(params.encoder, params.retriever.encoder)
    encoder = build_encoder(states)
    # The export encodes states, whose limit may differ from that of passages.
    encoder.limit(params.retriever.max_tokens)
    if not arm.reads_history:
        encoder.query_prompt = encoder.plain_prompt
    documents = None
    if adapter and params.merge.towers == "both":
        actions = build_encoder(params.encoder)
        documents = ExportedTower(actions, actions.passage_prompt, action_folder(adapter))
    made_from = {"adapter": content_of(adapter)} if adapter else {"base": encoder.identity, "base_model": encoder.name}
    return merge(
        ExportedTower(encoder, encoder.query_prompt, adapter) if arm.reads_vectors else None,
        out,
        WORK / "merge",
        documents=documents,
        min_cosine=params.merge.min_cosine,
        facts={
            "index_identity": vectors["identity"],
            "documents": vectors["encoder"],
            **made_from,
            **loading_facts(params, states, encoder, name, arm),
        },
    )


def loading_facts(
    params: Params, states: EncoderParams, encoder: "Encoder", name: str = TRAINED, arm: Arm = ARMS[TRAINED]
) -> dict[str, Any]:
    """Return what a user needs to search as the arm did; no address or path, unless in the settings of another
    package's retriever.

    ``retriever`` is that section; ``encoder`` is what reads ``states``, in the shape of its section, with its prompts
    written out; with ``statuses`` a finished hop says whether it FOUND anything.
    """
    reads_untrained_hops = arm.trained and arm.reads_history and getattr(params.pipeline, "picks", 0) == 1
    elsewhere = {"encoder", "function", "settings"} | ({"weights"} if params.retriever.fusion == "rrf" else set())
    prompts = {prompt: getattr(encoder, prompt) for prompt in ("query_prompt", "plain_prompt", "passage_prompt")}
    return {
        "format": FORMAT,
        "arm": name,
        "trained": arm.trained,
        "search": arm.search,
        "query": arm.query,
        "history": arm.reads_history,
        **({"function": arm.function, "settings": arm.settings} if arm.function else {}),
        "dataset": dataset_name(params),
        "pipeline": params.pipeline.name,
        **(
            {"trained_on": "single searches: it reads earlier ones, which no training showed it"}
            if reads_untrained_hops
            else {}
        ),
        "statuses": params.pipeline.tells_status,
        "towers": params.merge.towers,
        "retriever": params.retriever.model_dump(mode="json", exclude=elsewhere),
        "encoder": states.model_dump(mode="json", include={"max_tokens", "normalize"}) | prompts,
    }


def training_facts(params: Params) -> dict[str, str]:
    """Return what a model card says about the training, without server addresses and local paths."""
    from harr.builders.methods import method_of
    from harr.merge.card import plain_name

    train, judge = params.train, params.reward.judge
    lora = getattr(train, "lora", None)
    terms = params.model_dump(mode="json")["reward"]["terms"]
    rewards = {metric_name(name, judged=judge is not None): weight for name, weight in terms.items()}
    return {
        **method_of(train).describe(train),
        "LoRA": f"rank {lora.rank}, alpha {lora.alpha}" if lora else "none: all weights",
        "pipeline": params.pipeline.name,
        "questions": dataset_name(params),
        "rewards": "; ".join(f"{name}: {_weights(weight)}" for name, weight in rewards.items()),
        "judge": plain_name(judge.model) if judge else "none",
    }


def _weights(weight: Any) -> str:
    """Return one weight, or several with their steps, as text.

    >>> _weights(0.5), _weights([{"weight": 0.2, "start": 0, "end": 30}, {"weight": 0.5, "start": 30, "end": None}])
    ('0.5', '0.2 (steps 0 to 29), 0.5 (from step 30)')
    """
    if isinstance(weight, int | float):
        return f"{weight:g}"
    several = weight if isinstance(weight, list) else [weight]
    ends = [f"from step {w['start']}" if w["end"] is None else f"steps {w['start']} to {w['end'] - 1}" for w in several]
    return ", ".join(f"{term['weight']:g} ({steps})" for term, steps in zip(several, ends, strict=True))


def _note(folder: Path, params: Params, sections: set[str]) -> None:
    """Write a folder that says only that nothing was trained here, and what played, without its address."""
    private = {section: {"server"} for section in sections}
    with draft(WORK / "merge" / "note", folder) as note:
        write_json(note / "untrained.json", params.model_dump(include=sections, exclude=private, mode="json"))


def register_model(run: Run, params: Params) -> str:
    """Register the merged model with its evaluation and fingerprints, and return the version.

    It becomes the candidate unless this is a trial of `dvc exp`.

    Raises:
        StaleState: the evaluation is not of the merged model, or not of the corpus here.
        ParamsError: an earlier stage ran with other parameters, so params.yaml does not describe its work.
    """
    from tasks.registry.register import register

    if LOCK.exists():
        check_settings(params, but="merge")
    kind, folder = trained_folder(params)
    tags = version_tags(params, folder)
    return register(run, params, kind, folder, EVALUATION, tags, summary_here(), proposes=not is_try_out())


def is_try_out() -> bool:
    """Return whether this is a trial of `dvc exp run`, here or in its own folder."""
    return "DVC_EXP_BASELINE_REV" in os.environ


def version_tags(params: Params, folder: Path) -> dict[str, str]:
    """Return the tags of the version made from a folder of stage merge and the evaluation here.

    Passed expectations are figures of earlier stages, so DVC ties them to the data.

    Raises:
        StaleState: the model is not the one that was evaluated, or was evaluated with something else.
    """
    record, facts = check_played(params), read_state(folder / "harr.json", "run `dvc repro -f -s merge`")
    source = facts.get("adapter")
    if facts.get("arm", TRAINED) == TRAINED and record["model"] != source:
        raise StaleState(
            f"{folder} was made of adapter {str(source)[:8]}, but {EVALUATION} was played with {str(record['model'])[:8]}"
            "; run `dvc repro`, or `dvc checkout` for what was there"
        )
    thresholds = params.tracking.model_dump(mode="json", include={"min_questions", "conditions"})
    thresholds["metric"] = deciding_metric(params)
    return {
        "corpus": record["corpus"],
        "passages": str(record["passages"]),
        "trained_on": record["trained_on"] or "none recorded",
        "index": record["index"],
        "questions": record["questions"],
        "evaluation": same_game(record),
        "rules": json.dumps({**record["rules"], **thresholds}, sort_keys=True),
        "expectations": json.dumps(count_expectations(params, trained=facts.get("trained", True))),
        "arm": facts.get("arm", TRAINED),
        "trained": str(facts.get("trained", True)),
        "params": fingerprint(params.model_dump(mode="json")),
        **revisions(),
    }


def count_expectations(params: Params, *, trained: bool = True) -> dict[str, float]:
    """Return how many rules of every suite passed in the run that made this model; 0 without a result."""
    suites = {
        "corpus": "download",
        "questions": "download",
        "vectors": "embed",
        "index": "index",
        **({filter_suite(params): "filter"} if trained else {}),
        "evaluation": "evaluate",
    }
    figures: dict[str, dict[str, Any]] = {stage: {} for stage in suites.values()}
    for stage in figures:
        if (path := METRICS / f"{stage}.json").exists():
            figures[stage] = read_state(path, f"run `dvc repro -f -s {stage}`")
    return {suite: float(figures[stage].get(f"expected_{suite}", 0)) for suite, stage in suites.items()}


def merge(params: Params, run: Run) -> None:
    """Fold the adapter into the trained model and register it as the candidate."""
    run.record("merge", merge_adapter(params))
    run.dataset("adapter", ADAPTER, "merge")
    try:
        version = register_model(run, params)
    except ServiceUnavailable as error:
        print(f"warning: {error}; the model is not registered yet: `harr record`", file=sys.stderr)
        return
    run.tag(version=version)
    what = "a try-out; `harr promote` after `dvc exp apply` proposes it" if is_try_out() else "alias candidate"
    print(f"registered {params.tracking.registered_model} version {version} ({what})")


if __name__ == "__main__":
    main("merge", merge)
