"""A trained retriever in other frameworks: one module each, which imports only that framework (README.md)."""
