"""What is going to be done: records, in which every value is decided.

Read ``records`` first, then ``environments``. ``graph`` builds the job graph, ``codec`` has JSON
and the content hash, ``leaves`` and ``differences`` go through a plan by dotted path, and ``units``
writes its values.
"""
