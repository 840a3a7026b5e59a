"""How good are the tests? Break the numerical core in every small way and see which are noticed.

``mutators`` lists the ways to break a file, ``touching`` runs the tests once and notes which of
them touch a line, ``campaign`` breaks and tries, ``page`` tells what became of it.
"""
