"""The champion of the registry, as the report compares a run with it."""

from harr.arms import TRAINED
from harr.errors import HarrError
from harr.params import Params
from harr.report.differences import Champion
from harr.services.model_registry import CHAMPION
from tasks.registry.gate import rows_of
from tasks.tracking.client import open_client
from tasks.tracking.errors import look_up, service


def read_champion(params: Params) -> Champion | None:
    """Return the champion with all parameters of its execution, which stand on the parent run, and its rows of
    ``trained``; None without one, or where MLflow does not answer: the report is written without it then."""
    name = params.tracking.registered_model
    try:
        with service():
            client = open_client(params)
            version = look_up(client.get_model_version_by_alias, name, CHAMPION)
            run = look_up(client.get_run, version.run_id) if version else None
            if version is None or run is None:
                return None
            whole = look_up(client.get_run, run.data.tags.get("mlflow.parentRunId", version.run_id)) or run
            return Champion(
                f"{name} {version.version}",
                whole.data.params or run.data.params,
                rows_of(client, version, TRAINED)[TRAINED],
            )
    except HarrError as error:
        print(f"the report says nothing of the champion: {error}")
        return None
