"""What judges methods rather than makes intervals; the core never imports it.

``evaluation`` (methods × problems × splits), ``comparison`` (a verdict on one test set),
``report`` (figures and the page), ``bounds`` (coverage near one input), ``tuning`` (what a length
scale does), ``datasets`` (where the truth is known).
"""
