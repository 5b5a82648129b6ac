"""Map a task over many calls with the Prefect task runner that section ``runner`` of params.yaml names."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from queue import SimpleQueue
from typing import Any

from prefect import Task
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from harr.errors import ParamsError, ServiceUnavailable, one_line
from harr.params.embed import RayParams, ThreadsParams

NODE_FAILURES = 10
"""How often Ray makes a shard again whose node or process died under it."""


def spread(
    section: ThreadsParams | RayParams, unit: "Task[..., Any]", calls: Iterable[Mapping[str, Any]]
) -> Iterator[Any]:
    """Call ``unit`` with each of ``calls``, ``section.workers`` at a time; yield what comes back as it comes.

    Raises:
        ParamsError: Ray is not installed.
        ServiceUnavailable: the Ray cluster cannot be reached, or lost a call too often.
        HarrError: whatever the unit raised.
    """
    waiting, done = iter(calls), SimpleQueue[Any]()
    running = 0
    demands = _demands(section)
    with _started(section) as runner:
        while True:
            for call in islice(waiting, section.workers - running):
                with demands():
                    runner.submit(unit, dict(call)).add_done_callback(done.put)
                running += 1
            if not running:
                return
            future = done.get()
            running -= 1
            yield _answer(section, future)


@contextmanager
def _started(section: ThreadsParams | RayParams) -> Iterator["TaskRunner[Any]"]:
    """Start the task runner, up to the end of the block."""
    with ExitStack() as stack:
        if section.kind == "threads":
            yield stack.enter_context(ThreadPoolTaskRunner(max_workers=section.workers))
            return
        try:
            from prefect_ray import RayTaskRunner
        except ImportError:
            raise ParamsError("runner.kind: ray needs the extra ray; run `pip install 'harr[ray]'`") from None
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if not section.address:  # a cluster that nobody else can reach
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            runner = stack.enter_context(RayTaskRunner(section.address or "local", options))
        except (OSError, ValueError, RuntimeError) as error:
            raise ServiceUnavailable(
                f"no Ray cluster at {section.address or 'this machine'} ({one_line(error)}); start it "
                "(`ray start --head`), or correct runner.address"
            ) from None
        yield runner


def _demands(section: ThreadsParams | RayParams) -> Callable[[], AbstractContextManager[Any]]:
    """Return what Ray is asked to keep free for a call."""
    if section.kind == "threads":
        return nullcontext
    from prefect_ray.context import remote_options

    # max_calls: with a GPU Ray would start a process, and load the model, for every call
    kept = {"num_cpus": section.cpus, "num_gpus": section.gpus, "max_retries": NODE_FAILURES, "max_calls": 0}
    return lambda: remote_options(**kept)


def _answer(section: ThreadsParams | RayParams, future: Any) -> Any:
    if section.kind == "threads":
        return future.result()
    from ray.exceptions import RayError

    try:
        return future.result()
    except RayError as error:
        raise ServiceUnavailable(
            f"Ray lost a shard ({one_line(error)}); run the stage again, it goes on where it was"
        ) from None
