"""Stores: folders that contain a network, features or categories; see ``docs/store.md``.

`folder` and `shards` implement the container, an index and shards of named arrays; `network` and
`features` define the arrays, and `parts` writes a result part by part.
"""
