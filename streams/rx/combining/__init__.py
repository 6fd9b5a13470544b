"""Operators that read several streams, or streams of streams, and give one."""
