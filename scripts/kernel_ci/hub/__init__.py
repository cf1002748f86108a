"""The local Hub: the Kernel Hub's HTTP interface over a folder.

* `store` keeps repositories in a folder.
* `check` verifies such a folder and collects what crashes left behind.
* `server` speaks the Hub's HTTP interface for it.
"""
