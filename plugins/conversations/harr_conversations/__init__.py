"""Conversations: questions that can only be understood with the turns before them."""
