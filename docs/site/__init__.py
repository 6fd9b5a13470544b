"""The documentation site: how `make docs` builds it, offline, in some seconds.

This folder copies the pages of `docs/` and the files that they link to, makes the reference from
the docstrings, and draws their marble diagrams; zensical makes the HTML and the search. A broken
link or anchor, a page in no section of `navigation.py`, and anything that a browser would load from
elsewhere fail the build, and `tests/pages/test_site.py`.

The generator is zensical (https://zensical.org), the successor of Material for MkDocs by its
authors, because neither that nor MkDocs is developed any more (as of 2026-11-24). Version 0.1 needs
a package that not every index has, so the extra `docs` stays below it. The pages are plain Markdown
that GitHub shows too: only this folder knows zensical.
"""
