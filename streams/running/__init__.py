"""What users call to make a stream, and ways to read a stream that several read."""
