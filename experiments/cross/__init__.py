"""The comparison of methods under one protocol (docs/protocol.md), which is no paper's.

Boards with scores and their order, critical differences, performance profiles, and a replication.
"""
