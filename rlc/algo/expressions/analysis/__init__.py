"""What can be said of an expression before it is computed.

- ``reach``: which nodes have a gradient.
- ``degree``: how a loss scales with the advantages.
- ``ranges``: what its parts can be, of ``intervals``, and where they are undefined.
- ``growth``: whether it bounds the weight of a ratio that has run away, and whether it is finite.
- ``bounds``: what it would be without its bounds on the ratio.
- ``known``: whether a loss is one of the service's own by another name; the catalogue has
  ``known_loss(program)`` with all candidates.
"""
