"""The sub-commands about a pipeline on servers, and what each kind of server supplies to them."""
