"""The fictional worlds, their grammars, and the scripted player that reads them."""
