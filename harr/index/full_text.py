"""BM25's tokenization and parameters, the same in Milvus Lite, on a server and in memory."""

import re
from functools import cache
from typing import Any

from harr.characters import spell_words
from harr.io.extras import optional

BM25 = {"bm25_k1": 0.9, "bm25_b": 0.4}
"""Anserini's parameters, whose BM25 is the field's usual baseline; Lite's and the server's defaults differ."""
STOP_WORDS = (
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself "
    "it its itself they them their theirs themselves what which who whom this that these those am is are was were be "
    "been being have has had having do does did doing would should could ought a an the and but if or because as until "
    "while of at by for with about against between into through during before after above below to from up down in out "
    "on off over under again further then once here there when where why how all any both each few more most other "
    "some such no nor not only own same so than too very s t can will just don"
)
"""The Snowball list for English. Without it, Lite visits nearly every passage for each query."""
ANALYZER = {"tokenizer": "standard", "filter": ["lowercase", {"type": "stop", "stop_words": STOP_WORDS.split()}]}
"""The analyzer for Lite and server, which must rank alike. Lite has no stemmer, so texts are stemmed beforehand."""
PLAIN: dict[str, Any] = {"tokenizer": "standard", "filter": []}
"""The analyzer for stemmed texts (:func:`english_stems`)."""
WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
LUCENE = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
"""The stop words of Lucene's English analyzer."""
MAX_TEXT_BYTES = 65_535
"""Maximum length of a text field in Milvus."""


def prepare_text(content: str, stemmer: str = "") -> str:
    """Return a passage's or query's words as the analyzers read them, or their stems, truncated to a Milvus field."""
    content = spell_words(content)
    content = english_stems(content) if stemmer else content
    return content.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def english_stems(text: str) -> str:
    """Return the stems of a text's words as Lucene's English analyzer (hence Anserini) makes them: without 's, in
    lower case, without 33 stop words, by Porter's stemmer.

    >>> english_stems("The doctor's studies of statins")
    'doctor studi statin'

    Raises:
        MissingExtra: PyStemmer is not installed.
    """
    words = (re.sub(r"['\u2019]s$", "", word) for word in WORD.findall(text.lower()))
    return " ".join(_stemmer().stemWords([word for word in words if word not in LUCENE]))


@cache
def _stemmer() -> Any:
    return optional("Stemmer", "stemmer").Stemmer("porter")
