"""A trained retriever in other frameworks: a module each, which imports that framework alone (README.md)."""
