"""Settings of a virtual environment, for tests."""

ENVIRONMENT = {
    **{"python_min": "", "python_max": "", "constraints": [], "index_url": "", "extra_index_urls": [], "pip_args": []},
    **{"find_links": [], "no_index": False, "wheels": {}, "libraries": [], "min_free_mb": 0, "verify_script": ""},
    **{"verify_user": "", "verify_timeout": 0, "verify": False, "verify_environment": {}},
}
