"""Where should nearness be judged, and how local should scales be?"""
