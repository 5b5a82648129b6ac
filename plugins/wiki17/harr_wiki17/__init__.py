"""Questions over the Wikipedia articles of 2017: HotpotQA's fullwiki setting, and HoVer."""
