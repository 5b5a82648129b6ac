"""Words in any script: what one word is, which texts are equal, and what Milvus reads."""

import re
from unicodedata import normalize

import pytest
from hypothesis import given, strategies as st

from harr.characters import fold, list_words, normalise, spell_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada's CO² in 1901, snake_case", ["ada", "s", "co²", "in", "1901", "snake_case"]),
        ("हिन्दी की किताब।", ["हिन्दी", "की", "किताब"]),  # vowel signs and viramas do not split words
        ("القاهرة؟", ["القاهرة"]),
        ("北京钢铁公司", ["北京", "京钢", "钢铁", "铁公", "公司"]),
        ("東京ガス(2024年)", ["東京", "京ガ", "ガス", "2024", "年"]),
        ("東京ｶﾞｽ（２０２４年）", ["東京", "京ガ", "ガス", "2024", "年"]),
        ("ราคาน้ำมัน", ["รา", "าค", "คา", "าน้ำ", "น้ำมั", "มัน"]),  # a sign with its marks counts as one
        ("İstanbul IŞIK ışık", ["istanbul", "işik", "işik"]),
        ("GROSSE Straße", ["grosse", "strasse"]),
        ("Ве́ра", ["ве́ра"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    for form in ("NFC", "NFD"):
        assert list_words(normalize(form, text)) == [normalize("NFC", word) for word in words]
        # Milvus Lite reads \w+ in lower case
        spelled = re.findall(r"\w+", spell_words(normalize(form, text)).lower())
        assert len(spelled) == len(words) and len({*spelled}) == len({*words})


@given(text=st.text(alphabet=st.characters(max_codepoint=0x24F), max_size=40).map(lambda text: normalize("NFC", text)))
def test_words_of_latin_letters_are_those_of_python(text: str) -> None:
    if "ı" not in fold(text) and not re.search("[İı]", text):
        assert list_words(text) == re.findall(r"\w+", normalize("NFC", text.casefold()))


def test_english_is_normalised_word_by_word() -> None:
    """A name in another script does not affect the English around it: “gold” and passage are cut alike."""
    text = "The people\u2019s “park” – (人民公园), «Парк»"
    assert normalise(text) == "people\u2019s “park” – 人 民 公 园 парк"
    assert normalise("„Der Spiegel“") == "der spiegel"
