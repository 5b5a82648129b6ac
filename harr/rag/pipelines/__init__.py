"""RAG pipelines: generators in the sense of Python, which yield searches and requests for text."""
