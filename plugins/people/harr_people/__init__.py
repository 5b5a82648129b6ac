"""The people's world, its language, and the scripted player that reads it."""
