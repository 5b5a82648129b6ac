"""Files that appear whole, JSON lines, model folders that are safe, work that resumes, progress."""
