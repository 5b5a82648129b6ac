"""Versions that nobody needs any more: those that no alias names and that were never champion."""

from harr.params import Params
from tasks.registry.history import champions
from tasks.registry.register import list_files
from tasks.tracking.client import open_client
from tasks.tracking.errors import look_up, service


def prune_versions(params: Params) -> list[str]:
    """Delete versions that nothing goes back to, each with its run, and return what `mlflow gc` frees by that.

    The note of attempts on the test questions is the registered model's, and stays.

    Raises:
        ServiceUnavailable: MLflow does not answer.
    """
    name, lines, total = params.tracking.registered_model, [], 0.0
    with service():
        client = open_client(params)
        if (model := look_up(client.get_registered_model, name)) is None:
            return []
        kept = {*champions(client, name), *map(str, model.aliases.values())}
        for version in client.search_model_versions(f"name = '{name}'"):
            if str(version.version) in kept:
                continue
            megabytes = sum(file.file_size or 0 for file in list_files(client, version.run_id)) / 1e6
            client.delete_model_version(name, version.version)
            client.delete_run(version.run_id)
            total += megabytes
            lines.append(f"deleted: version {version.version} of {name}, {megabytes:,.0f} MB")
    return [*lines, f"`mlflow gc` frees {total:,.0f} MB (docs/operations.md)"] if lines else []
