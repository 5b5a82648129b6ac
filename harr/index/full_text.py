"""How texts become words for BM25, alike in Milvus Lite, on a server and in memory, and the parameters of BM25."""

BM25 = {"bm25_k1": 0.9, "bm25_b": 0.4}
"""The parameters of Anserini, whose BM25 is the field's usual baseline; Lite's and the server's defaults differ."""
STOP_WORDS = (
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself "
    "it its itself they them their theirs themselves what which who whom this that these those am is are was were be "
    "been being have has had having do does did doing would should could ought a an the and but if or because as until "
    "while of at by for with about against between into through during before after above below to from up down in out "
    "on off over under again further then once here there when where why how all any both each few more most other "
    "some such no nor not only own same so than too very s t can will just don"
)
"""The Snowball list for English. Without one, Lite walks through nearly every passage for each query."""
ANALYZER = {"tokenizer": "standard", "filter": ["lowercase", {"type": "stop", "stop_words": STOP_WORDS.split()}]}
"""The analyzer of Lite and server, which must rank alike: Lite has no stemmer, so neither stems."""
