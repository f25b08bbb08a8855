# SPDX-License-Identifier: Apache-2.0
"""The domain of trainyard in pure Python: no I/O and no Ansible import, so every rule can be tested by itself."""
