"""Questions over the articles of Wikipedia of 2017: HotpotQA's fullwiki setting, and HoVer."""
