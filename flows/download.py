"""Stage download: `python -m flows.download`."""

from prefect import flow

from flows.runtime.command import main
from harr.params import Params
from tasks.download import corpus_frame, download_corpus, questions_frame
from tasks.expectations.process import expect
from tasks.paths import CORPUS, QUESTIONS
from tasks.tracking.run import tracked_run


@flow(name="download")
async def download() -> None:
    """Fetch or make the corpus and its questions, and check them."""
    params = Params.load()
    with tracked_run("download", params) as run:
        figures = download_corpus(params)
        held = expect("corpus", corpus_frame()) | expect("questions", questions_frame(params))
        run.record("download", figures | held)
        run.dataset("corpus", CORPUS, "corpus")
        run.dataset("questions", QUESTIONS, "questions")


if __name__ == "__main__":
    main(download, checks=True)
