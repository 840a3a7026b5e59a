"""Studies: is the claim true?"""
