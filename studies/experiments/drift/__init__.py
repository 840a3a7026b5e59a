"""Does coverage hold where the world changes?"""
