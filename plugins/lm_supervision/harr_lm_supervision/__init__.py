"""REPLUG and LRAT: a retriever learns from what the language model's rewards say of passages, without a policy."""
