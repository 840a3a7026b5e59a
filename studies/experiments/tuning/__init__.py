"""Which criterion should tune the kernel?"""
