"""States in tables of a PostgreSQL database: for one run, or shared by several."""
