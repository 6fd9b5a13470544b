"""Solutions of the kata: the article's steps, the library's pipeline, a consumer from a file."""
