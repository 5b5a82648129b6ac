"""BM25 of small corpora in languages whose words a tokenizer of English tears apart: gold comes first, in memory and in
Milvus Lite, however case, width and form of Unicode are written."""

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from harr_links.words import WordIndex, build_words, words_of
from indexed import write_vectors

from harr.characters import states_answer
from harr.corpus.passages import Passages, write_passages
from harr.index.build import build_index
from harr.index.full_text import prepare_text
from harr.index.passage_index import PassageIndex
from harr.params.index import IndexParams
from harr.rag.scoring.text import exact_match, token_f1
from harr.types import Passage

CORPORA = {  # a passage and a question, each with a place for a name; names; an answer as a model writes it
    "Chinese": (
        "{}先生创立了一家钢铁企业，总部在北京。",
        "{}创办的企业总部在哪里？",
        "赵伟伟 钱小明 孙丽华 李国强 周建军",
        "“{}”。",
    ),
    "Japanese": (
        "{}は大阪でガラスの会社を始めた人である。",
        "{}が始めたのは何の会社ですか。",
        "佐藤健一 鈴木ひかり 高橋ガク 田中みどり 渡辺翔",
        "「{}」。",
    ),
    "Thai": ("{}เป็นผู้ก่อตั้งบริษัทน้ำตาลในกรุงเทพ", "บริษัทของ{}อยู่ที่ไหน", "สมชาย น้ำฝน ประเสริฐ กิ่งแก้ว ธีรพงษ์", "{}"),
    "Arabic": (
        "أسس {} شركة للصلب في القاهرة.",
        "أين تقع الشركة التي أسسها {}؟",
        "أحمد سلمان يوسف إبراهيم مصطفى",
        "{}؟",
    ),
    "Hindi": ("{} ने दिल्ली में एक कंपनी की स्थापना की।", "{} की कंपनी कहाँ है?", "किरण कोरण कुरण हिमांशु सृष्टि", "{}।"),
    "Russian": (
        "{} основал завод в Москве.",
        "Где завод, который основал {}?",
        "Алексей Фёдор Йосиф Андрей Юрий",
        "«{}»",
    ),
    "German": (
        "{} gründete eine Gießerei in Köln.",
        "WO GRÜNDETE {} EINE FIRMA?",
        "Jürgen Weiß Käthe Björn Strauß",
        "„{}“",
    ),
    "Turkish": (
        "{} Ankara'da bir çelik şirketi kurdu.",
        "{} HANGİ ŞEHİRDE ŞİRKET KURDU?",
        "İdil Işıl Çağrı Gülşah Şahin",
        "{}.",
    ),
}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("language", CORPORA)
def test_gold_comes_first_and_its_name_is_an_answer(language: str, form: str, tmp_path: Path) -> None:
    passage, question, names, answer = CORPORA[language]
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    golds = names.split()
    texts = [normalize(form, passage.format(name)) for name in golds]
    asked = [question.format(name) for name in golds]
    queries = [normalize(other, text.upper() if question.isupper() else text) for text in asked]
    write_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)], tmp_path / "corpus")
    passages, vectors = Passages.open(tmp_path / "corpus"), np.eye(len(texts), 8, dtype=np.float32)
    build_words(passages, tmp_path / "words", tmp_path / "work")
    index = WordIndex.open(tmp_path / "words")
    in_memory = [index.find_best(words_of(query), 5) for query in queries]
    assert [next(iter(scores)) for scores in in_memory] == list(range(len(texts)))
    build_index(
        passages, write_vectors(tmp_path / "vectors", vectors, "feed"), IndexParams(), tmp_path / "index", tmp_path
    )
    with PassageIndex.open(tmp_path / "index", IndexParams(), identity="feed") as milvus:
        rows_QN, scores_QN = milvus.search_text(queries, 5)
    assert rows_QN[:, 0].tolist() == list(range(len(texts)))
    for scores, rows, found in zip(in_memory, rows_QN, scores_QN, strict=True):
        shares = {row: score / found[0] for row, score in zip(rows.tolist(), found, strict=True) if row >= 0}
        assert shares == pytest.approx(scores, rel=1e-4), "the words are the same in memory and in Milvus"
    for name, text in zip(golds, texts, strict=True):
        said = normalize(other, answer.format(name))
        assert exact_match(said, [name]) == token_f1(said, [name]) == 1.0
        assert states_answer(text, [said])
        assert not any(states_answer(text, [wrong]) for wrong in golds if wrong != name)


def test_a_passage_longer_than_a_field_is_found_by_its_beginning(tmp_path: Path) -> None:
    """Milvus refuses fields of more than 65,535 bytes, and a cut within a letter is no UTF-8."""
    long = "first " + "öü" * 60_000 + " last"
    assert len(prepare_text(long).encode()) == 65_534
    write_passages([Passage("p0", "other"), Passage("p1", long)], tmp_path / "corpus")
    passages, vectors = Passages.open(tmp_path / "corpus"), np.eye(2, 8, dtype=np.float32)
    build_index(
        passages, write_vectors(tmp_path / "vectors", vectors, "feed"), IndexParams(), tmp_path / "index", tmp_path
    )
    with PassageIndex.open(tmp_path / "index", IndexParams(), identity="feed") as milvus:
        assert milvus.search_text(["first", "last"], 1)[0].tolist() == [[1], [-1]]
