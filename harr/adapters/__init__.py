"""A trained retriever in other frameworks: a module each, which imports that framework alone (docs/adapters.md)."""
