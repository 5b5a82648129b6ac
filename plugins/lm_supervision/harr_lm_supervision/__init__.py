"""REPLUG and LRAT: a retriever learns from the language model's rewards for passages, without a policy."""
