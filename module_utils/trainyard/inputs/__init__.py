# SPDX-License-Identifier: Apache-2.0
"""What users give, looked at before anything else: variables, job files, hosts and tags that match nothing."""
