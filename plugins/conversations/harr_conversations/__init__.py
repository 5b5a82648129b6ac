"""Conversations: questions that need the turns before them to be understood."""
