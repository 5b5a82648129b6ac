"""Rows of questions: scores of documents, and measures of a ranking."""

from harr.evaluate.rows import question_rows
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def test_rows_have_the_score_of_every_document_and_measures_that_all_questions_have() -> None:
    question = Question("q", "Who?", gold_ids=("a",))
    found = tuple(Passage(pid, "") for pid in ("a_chunk_1", "b", "a_chunk_0"))
    scored = Step(Search(question, "Who?"), Retrieval(found, scores=(0.9, 0.75, 0.5)))
    [row] = question_rows([Episode(question, (scored,))])
    assert (row["ranked"], row["scores"]) == (["a", "b"], [0.9, 0.75])
    [row] = question_rows([Episode(question, (scored, Step(Search(question, "Who?"), Retrieval(found))))])
    assert "scores" not in row, "a retriever without scores has none"
    long = Retrieval(tuple(Passage(pid, "") for pid in "bcadefg"))  # one of two questions searched seven deep
    rows = question_rows([Episode(question, (Step(Search(question, "Who?"), long),)), Episode(question)])
    assert [row["recall_at_5"] for row in rows] == [1.0, 0.0]
    assert not any("recall_at_10" in row or "ndcg_at_10" in row for row in rows)
