def area(sizes):
    return sizes["width"] * sizes["height"]


AREA = area({"width": 3})


def make():
    return AREA
