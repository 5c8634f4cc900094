"""Roles that several tests give to their principals, as an access file has them."""

READER = """
[[roles.reader]]
topic = "*"
allow = ["READ"]
[[roles.reader]]
group = "*"
allow = ["READ"]
"""

WRITER = """
[[roles.writer]]
topic = "*"
allow = ["WRITE"]
"""

APP = """
[[roles.app]]
topic = "*"
allow = ["READ", "WRITE", "CREATE"]
[[roles.app]]
group = "*"
allow = ["READ"]
"""

# Of transactional ids, and of names of named sequences.
OWNER = """
[[roles.owner]]
transactional_id = "*"
allow = ["WRITE", "TWO_PHASE_COMMIT"]
"""
