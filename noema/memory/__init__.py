"""Governed memory: the one door to knowledge, for minds and for every other agent.

    Identity ─▶ kernel (prologue) ─▶ write: extract ▸ verify ▸ entities ▸ classify ▸ insert
                                 └─▶ retrieve: text lane + vector lane ▸ context ▸ fuse ▸ trim
                                 └─▶ policy, pins, shares, explain, stats
    afterwards, out of band:         conflicts, lineage, decay, embedding of what has no vector yet

`model` holds the values, `scope` the one rule of who sees what, `store` all SQL.
"""
