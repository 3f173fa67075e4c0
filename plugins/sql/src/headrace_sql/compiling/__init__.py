"""How queries become streams: one module for each clause, and the script that runs the statements of a text in their order.

The highest room: it imports all others. Only the modules beside the rooms (``api``, ``commands``) import it.
"""
