"""The tuning records: the format of a line, the database, and which records apply where.

`shipped/` holds the records that come with the package."""
