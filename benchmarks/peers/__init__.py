"""The same jobs in other libraries, each written the way its own documentation would."""
