"""The same jobs in other libraries, each written as its own documentation suggests."""
