"""A pipeline on several cores: a part of its stages runs in worker processes of this machine."""
