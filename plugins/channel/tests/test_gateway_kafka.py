def test_gw03_(): pass
def test_gw09_(): pass
